//! The configuration: `gapless.toml`, overridden key by key from the environment.
//!
//! Wrong is better found at start than at night: an unknown key is an error that names the nearest one, and values
//! that cannot work together are refused.

mod check;
mod file;
mod idle;
mod overlay;
mod settings;
mod trouble;

use std::path::Path;

use anyhow::{Context, bail};

pub(crate) use file::{Accept, ApiKeyConfig, ChainConfig, Config, LogFormat, SignerConfig, SubmitterConfig};
pub(crate) use settings::lane_settings;

/// What is read when no file is named.
const DEFAULT_FILE: &str = "gapless.toml";

/// Reads and checks the configuration. Without a file, the defaults and the environment count.
pub(crate) fn load(file: Option<&Path>) -> anyhow::Result<Config> {
    let text = match file {
        Some(file) => read(file)?,
        None if Path::new(DEFAULT_FILE).exists() => read(Path::new(DEFAULT_FILE))?,
        None => String::new(),
    };
    let name = file.unwrap_or(Path::new(DEFAULT_FILE)).display();
    parse(&text, std::env::vars()).with_context(|| format!("configuration {name}"))
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read the configuration {}", file.display()))
}

/// Parses a text and lays the environment over it.
pub(crate) fn parse(text: &str, env: impl IntoIterator<Item = (String, String)>) -> anyhow::Result<Config> {
    let mut table: toml::Table = text.parse().context("it is not TOML")?;
    overlay::apply(&mut table, env)?;
    let read = serde_path_to_error::deserialize(toml::Value::Table(table));
    let config: Config = match read {
        Ok(config) => config,
        Err(error) => bail!("{}", explain(&error.path().to_string(), error.inner().message())),
    };
    check::check(&config)?;
    Ok(config)
}

/// Says where, and adds the nearest known key to serde's "unknown field `a`, expected one of `b`, `c`".
fn explain(path: &str, message: &str) -> String {
    let message = message.trim_end();
    let Some((name, known)) = unknown_key(message) else { return format!("{path}: {message}") };
    match gapless_api::nearest(name, known.iter().copied()) {
        Some(near) => format!("unknown key `{path}`; did you mean `{near}`?"),
        None => format!("unknown key `{path}`; known are {}", known.join(", ")),
    }
}

fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (name, rest) = rest.split_once("`, expected ")?;
    Some((name, rest.split('`').skip(1).step_by(2).collect()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use gapless_core::govern::Step;
    use gapless_core::ports::chain::Tag;
    use gapless_core::ports::policy::StuckAction;
    use gapless_engine::{FinalityRule, LaneSettings};

    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn refused(text: &str) -> String {
        format!("{:#}", parse(text, []).unwrap_err())
    }

    const ADDRESS: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

    #[test]
    fn nothing_at_all_is_a_configuration() {
        let config = parse("", []).unwrap();
        assert_eq!(config.store.url, "sqlite://gapless.db");
        assert_eq!(config.lease.duration.0, Duration::from_secs(10));
        assert_eq!(lane_settings(&config, None).unwrap(), gapless_engine::LaneSettings::default());
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        assert!(refused("[lease]\nrenew_intervall = \"3s\"").contains("did you mean `renew_interval`"));
        assert!(refused("[leese]").contains("did you mean `lease`"));
        assert!(refused("[lease]\nrenew_intervall = \"3s\"").contains("lease"));
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, says) in [
            ("[lease]\nrenew_interval = \"5s\"", "half of lease.duration"),
            ("[lease]\nduration = \"10\"", "not a duration"),
            ("[lease]\nclock_skew_allowance = \"6s\"", "clock_skew_allowance"),
            ("[http]\nlisten = \"0.0.0.0:8080\"", "api_keys"),
            ("[store]\nurl = \"mysql://x\"", "sqlite://FILE"),
            ("[nonce]\nmode = \"loose\"", "pipelined"),
            ("[log]\nformat = \"xml\"", "xml"),
            ("[[chains]]\nid = \"eip155:1\"\nrpc = []", "no rpc"),
            ("[[submitters]]\nchain = \"eip155:1\"\naddress = \"0x12\"", "0x12"),
            ("[policy]\nmax_value = \"1\"", "not enforced"),
            ("[gas_bump]\nmultiplier = 1.05", "gas_bump.multiplier = 1.05: write 1.1 to 10"),
            ("[gas_bump]\nmultiplier = 11", "gas_bump.multiplier"),
            ("[gas_bump]\nmultiplier = nan", "gas_bump.multiplier"),
            ("[gas_bump]\nmax_attempts = 0", "gas_bump.max_attempts"),
            ("[gas_bump]\nmin_interval = \"0s\"", "gas_bump.min_interval"),
            ("[confirmations]\nrule = \"latest\"", "\"safe\" or \"finalized\""),
            ("[fees]\nmax_cost = \"0\"", "fees.max_cost"),
            ("[fees]\nmax_cost = \"1 ether\"", "fees.max_cost"),
            ("[fees]\nrefresh = \"2 blocks\"", "fees.refresh"),
            ("[fees]\ntype = \"legacy\"", "fees.type"),
            ("[health]\nmin_balance = \"-1\"", "health.min_balance"),
            ("[health]\nretry = \"0s\"", "health.retry"),
            ("[health]\nbalance_refresh = \"0s\"", "health.balance_refresh"),
            ("[events]\nconfirmations = \"some\"", "events.confirmations"),
            ("no toml", "TOML"),
        ] {
            let error = refused(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        let lost = format!("[[submitters]]\nchain = \"eip155:5\"\naddress = \"{ADDRESS}\"");
        assert!(refused(&lost).contains("eip155:5"));
    }

    #[test]
    fn a_policy_for_the_stuck_that_cannot_work_is_refused_with_its_code() {
        let (endless, invalid) = ("(policy-cannot-terminate)", "(policy-invalid)");
        for (text, says, code) in [
            ("[stuck]\nstall_after = \"0s\"", "stall_after", endless),
            (
                "[[stuck.steps]]\nafter = \"5m\"\naction = \"bump\"",
                "stuck: steps[0] (bump) has no max",
                endless,
            ),
            (
                "[[stuck.steps]]\nafter = \"5m\"\naction = \"rebroadcast\"\nmax = 5000",
                "at most 1000",
                endless,
            ),
            ("[stuck]\nmax_age = \"1s\"", "max_age", invalid),
            ("[[stuck.steps]]\nafter = \"5m\"\naction = \"bump\"\nmax = 0", "max = 0", invalid),
            (
                "[[stuck.steps]]\nafter = \"5m\"\naction = \"protect\"\n\
                 [[stuck.steps]]\nafter = \"6m\"\naction = \"bump\"\nmax = 1",
                "steps[1] (bump) comes after protect",
                invalid,
            ),
            (
                "[[stuck.steps]]\nafter = \"5m\"\naction = \"bump\"\nmax = 1\nwhen = [\"underpriced\"]",
                "mempool.diagnose = true",
                invalid,
            ),
            (
                "[[chains]]\nid = \"eip155:1\"\nrpc = [\"http://a\"]\nstuck = { max_attempts = 0 }",
                "eip155:1",
                invalid,
            ),
        ] {
            let error = refused(text);
            assert!(error.contains(says) && error.contains(code), "{text}: {error}");
        }
        for (text, says) in [
            (
                "[[stuck.steps]]\nafter = \"5m\"\naction = \"cancel\"",
                "stuck.steps[0].action: unknown variant `cancel`",
            ),
            ("[[stuck.steps]]\nafter = \"5m\"\naction = \"bump\"\nwhen = [\"gone\"]", "stuck.steps[0].when"),
            ("[[stuck.steps]]\naction = \"bump\"", "missing field `after`"),
            ("[[stuck.steps]]\nafter = \"5m\"\naction = \"bump\"\nmaxx = 1", "did you mean `max`"),
        ] {
            let error = refused(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn what_the_governors_page_shows_is_a_configuration() {
        let page = include_str!("../../../docs/governor.md");
        let shown: Vec<&str> =
            page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(shown.len(), 1);
        let config = parse(shown[0], []).unwrap();
        assert_eq!(lane_settings(&config, None).unwrap().stuck.steps.len(), 3);
        assert!(config.idle().is_empty());
    }

    #[test]
    fn a_chains_finality_cannot_be_configured_away() {
        let chain = |id: u64, depth: u64| {
            format!("[[chains]]\nid = \"eip155:{id}\"\nrpc = [\"http://a\"]\nfinality_depth = {depth}")
        };
        let error = refused(&chain(1, 63));
        assert!(error.contains("finality_depth = 63 is below 64, which no setting can lower"), "{error}");
        for (id, depth) in [(1, 64), (1, 200), (1_337, 0), (31_337, 3)] {
            let text = format!(
                "{}\n[[submitters]]\nchain = \"eip155:{id}\"\naddress = \"{ADDRESS}\"",
                chain(id, depth)
            );
            let config = parse(&text, []).unwrap();
            let submitter = config.submitters[0].id().unwrap();
            let settings = lane_settings(&config, Some(&submitter)).unwrap();
            assert_eq!(settings.finality_depth, Some(depth));
            assert!(config.idle().is_empty());
        }
    }

    #[test]
    fn what_is_said_about_trouble_reaches_the_lane_from_every_layer() {
        let text = format!(
            "[mempool]\ndiagnose = true\n[events]\nconfirmations = \"all\"\n\
             [gas_bump]\nenabled = true\nmultiplier = 1.3\nmin_interval = \"15s\"\nmax_attempts = 4\n\
             [fees]\nmax_cost = \"1000\"\nrefresh = \"1 block\"\n[confirmations]\nrule = \"safe\"\n\
             [nonce]\nrecycle_hold = \"0s\"\n[health]\nmin_balance = \"0x10\"\nretry = \"5s\"\n\
             [stuck]\nstall_after = \"30s\"\n[[stuck.steps]]\nafter = \"1m\"\naction = \"rebroadcast\"\nmax = 2\n\
             when = [\"lost\", \"gapBelow\"]\n\
             [[chains]]\nid = \"eip155:1\"\nrpc = [\"http://a\"]\nstuck = {{ max_age = \"2h\" }}\n\
             gas_bump = {{ multiplier = 2 }}\n[[submitters]]\nchain = \"eip155:1\"\naddress = \"{ADDRESS}\"\n\
             confirmations = {{ rule = \"finalized\" }}\nhealth = {{ balance_refresh = \"1m\" }}\n\
             [[submitters.stuck.steps]]\nafter = \"10m\"\naction = \"placeholder\"\n"
        );
        let config = parse(&text, []).unwrap();
        assert!(config.idle().is_empty(), "{:?}", config.idle());
        let file = lane_settings(&config, None).unwrap();
        let id = config.submitters[0].id().unwrap();
        let lane = lane_settings(&config, Some(&id)).unwrap();
        for settings in [&file, &lane] {
            assert!(settings.diagnose && settings.tell_confirmations && settings.bump.enabled);
            assert_eq!((settings.bump.max_attempts, settings.bump.min_interval.as_secs()), (4, 15));
            assert_eq!(settings.caps.max_cost.unwrap().to_string(), "0x3e8");
            assert_eq!(settings.health.min_balance.unwrap().to_string(), "0x10");
            assert_eq!((settings.health.retry.as_secs(), settings.recycle_hold.as_secs()), (5, 0));
            assert_eq!(settings.stuck.stall_after, Duration::from_secs(30));
        }
        assert_eq!((file.bump.multiplier.0, lane.bump.multiplier.0), (1_300_000, 2_000_000));
        assert_eq!((file.stuck.max_age.as_secs(), lane.stuck.max_age.as_secs()), (3_600, 7_200));
        assert_eq!((file.health.balance_refresh.as_secs(), lane.health.balance_refresh.as_secs()), (300, 60));
        assert_eq!(file.finality, FinalityRule::Tag(Tag::Safe));
        assert_eq!(lane.finality, FinalityRule::Tag(Tag::Finalized));
        let steps = |settings: &LaneSettings| -> Vec<(StuckAction, u32, usize)> {
            let of = |step: &Step| (step.action, step.max, step.when.as_ref().map_or(0, BTreeSet::len));
            settings.stuck.steps.iter().map(of).collect()
        };
        assert_eq!(steps(&file), [(StuckAction::Rebroadcast, 2, 2)]);
        assert_eq!(steps(&lane), [(StuckAction::Placeholder, 1, 0)]);
    }

    #[test]
    fn the_environment_has_the_last_word() {
        let text = "[node]\nid = \"a\"\n[[chains]]\nid = \"eip155:1\"\nrpc = [\"http://a\"]";
        let over = env(&[
            ("GAPLESS__NODE__ID", "7"),
            ("GAPLESS__LEASE__DURATION", "20s"),
            ("GAPLESS__CHAINS__0__RPC", "[\"http://b\"]"),
            ("GAPLESS__CONFIRMATIONS__REQUIRED", "3"),
            ("GAPLESS_URL", "ignored"),
        ]);
        let config = parse(text, over).unwrap();
        assert_eq!(config.node.id.as_deref(), Some("7"));
        assert_eq!(config.lease.duration.0, Duration::from_secs(20));
        assert_eq!(config.chains[0].rpc, ["http://b"]);
        assert_eq!(lane_settings(&config, None).unwrap().confirmations, 3);
        let wrong = parse("", env(&[("GAPLESS__LEASE__DURATON", "1s")])).unwrap_err();
        assert!(format!("{wrong:#}").contains("did you mean `duration`"));
    }

    #[test]
    fn a_submitter_overrides_its_chain_and_the_chain_the_file() {
        let text = format!(
            "[confirmations]\nrequired = 5\n[[chains]]\nid = \"eip155:1\"\nrpc = [\"http://a\"]\n\
             confirmations = {{ required = 7 }}\nnonce = {{ mode = \"pipelined\" }}\n[[submitters]]\n\
             chain = \"eip155:1\"\naddress = \"{ADDRESS}\"\nconfirmations = {{ required = 9 }}"
        );
        let config = parse(&text, []).unwrap();
        let id = config.submitters[0].id().unwrap();
        let settings = lane_settings(&config, Some(&id)).unwrap();
        assert_eq!((settings.confirmations, settings.rules.mode.name()), (9, "pipelined"));
        assert_eq!(lane_settings(&config, None).unwrap().confirmations, 5);
    }
}
