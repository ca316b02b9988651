//! The configuration: `gapless.toml`, overridden key by key from the environment.
//!
//! Wrong is better found at start than at night: an unknown key is an error that names the nearest one, and values
//! that cannot work together are refused.

mod check;
mod file;
mod idle;
mod overlay;
mod settings;

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
    use std::time::Duration;

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
            ("no toml", "TOML"),
        ] {
            let error = refused(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        let lost = format!("[[submitters]]\nchain = \"eip155:5\"\naddress = \"{ADDRESS}\"");
        assert!(refused(&lost).contains("eip155:5"));
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
