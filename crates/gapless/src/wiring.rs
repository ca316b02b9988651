//! From the configuration to ports: stores, chains, signers, keys.

use std::sync::Arc;

use alloy_primitives::{Address, hex};
use anyhow::{Context, bail};
use gapless_api::auth::{ApiKey, KeyScope, Keys};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::signer::Signer;
use gapless_core::ports::store::Store;
use gapless_core::submitter::ChainId;
use gapless_core::time::Timestamp;
use gapless_engine::{Registry, Submitter};
use gapless_evm::{EvmChain, EvmOptions, LocalSigner, RemoteOptions, RemoteSigner};
use gapless_store::StoreUrl;
use gapless_store::memory::MemoryStore;
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_store::sqlite::SqliteStore;

use crate::config::{ApiKeyConfig, ChainConfig, Config, SignerConfig, SubmitterConfig, lane_settings};

/// Opens the store.
pub(crate) async fn store(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match config.store.url.parse::<StoreUrl>()? {
        StoreUrl::Memory => Arc::new(MemoryStore::new(clock)),
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(&path, clock).await?),
        StoreUrl::Postgres(url) => Arc::new(PostgresStore::open(&postgres(config, &url)).await?),
    })
}

/// How to reach PostgreSQL.
pub(crate) fn postgres(config: &Config, url: &str) -> PostgresOptions {
    PostgresOptions {
        schema: config.store.schema.clone(),
        pool: config.store.pool,
        lease: config.lease.duration.0,
        ..PostgresOptions::new(url)
    }
}

/// How to reach a chain.
pub(crate) fn chain_options(chain: &ChainConfig) -> anyhow::Result<(ChainId, EvmOptions)> {
    let id: ChainId = chain.id.parse()?;
    let number = id.evm().with_context(|| format!("{id} is not an EVM chain"))?;
    let options = EvmOptions {
        private_endpoints: chain.private_rpc.clone(),
        timeout: chain.rpc_timeout.0,
        max_in_flight: chain.rpc_max_in_flight,
        ..EvmOptions::new(number, chain.rpc.iter().cloned())
    };
    Ok((id, options))
}

/// All chains and submitters. Loading a keystore takes as long as its author wanted: nothing else runs meanwhile.
pub(crate) async fn registry(config: &Config) -> anyhow::Result<Registry> {
    let registry = Registry::new(lane_settings(config, None)?);
    for chain in &config.chains {
        let (id, options) = chain_options(chain)?;
        let chain = EvmChain::new(&options).with_context(|| format!("chains: {id}"))?;
        registry.add_chain(id, Arc::new(chain));
    }
    for submitter in &config.submitters {
        let id = submitter.id()?;
        let settings = lane_settings(config, Some(&id))?;
        let signer = signer(submitter).await.with_context(|| format!("the signer of {id}"))?;
        registry.add_submitter(Submitter { id, settings, signer });
    }
    Ok(registry)
}

/// A submitter's signer; none if none is configured.
pub(crate) async fn signer(submitter: &SubmitterConfig) -> anyhow::Result<Option<Arc<dyn Signer>>> {
    let Some(config) = submitter.signer.clone() else { return Ok(None) };
    let address = submitter.id()?.address().context("not an EVM account")?;
    // Decrypting blocks for up to seconds.
    let loaded = tokio::task::spawn_blocking(move || load(&config, address)).await?;
    loaded.map(Some)
}

fn load(config: &SignerConfig, address: Address) -> anyhow::Result<Arc<dyn Signer>> {
    let SignerConfig { private_key_file, keystore, password_file, mnemonic_file, path, remote, .. } = config;
    let kinds = [
        ("private_key_file", private_key_file.is_some()),
        ("keystore", keystore.is_some()),
        ("mnemonic_file", mnemonic_file.is_some()),
        ("remote", remote.is_some()),
        ("aws_kms", config.aws_kms.is_some()),
        ("gcp_kms", config.gcp_kms.is_some()),
        ("external", config.external.is_some()),
    ];
    let given: Vec<&str> = kinds.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    let kind = match given.as_slice() {
        [kind] => *kind,
        [] => bail!("signer names no kind; use private_key_file, keystore, mnemonic_file or remote"),
        several => bail!("signer names several kinds ({}); use one", several.join(", ")),
    };
    Ok(match (kind, private_key_file, keystore, mnemonic_file, remote) {
        (_, Some(file), ..) => Arc::new(LocalSigner::from_key_file(file, Some(address))?),
        (_, _, Some(keystore), ..) => {
            let password = password_file.as_ref().context("a keystore needs its password_file")?;
            let loaded = LocalSigner::from_keystore(keystore, password, Some(address));
            Arc::new(loaded.with_context(|| keystore.display().to_string())?)
        }
        (_, _, _, Some(file), _) => {
            let path = path.as_deref().unwrap_or("m/44'/60'/0'/0/0");
            Arc::new(LocalSigner::from_mnemonic_file(file, path, Some(address))?)
        }
        (.., Some(url)) => Arc::new(RemoteSigner::new(&RemoteOptions::new(url, address))?),
        (kind, ..) => bail!("signer kind {kind} is not supported by this version"),
    })
}

/// All API keys.
pub(crate) fn keys(config: &Config) -> anyhow::Result<Keys> {
    let read = |key: &ApiKeyConfig| api_key(key).with_context(|| format!("api_keys: {}", key.name));
    config.api_keys.iter().map(read).collect::<anyhow::Result<_>>().map(Keys)
}

fn api_key(key: &ApiKeyConfig) -> anyhow::Result<ApiKey> {
    let hash = hex::decode_to_array::<_, 32>(key.hash.as_str());
    let scope = |name: &String| {
        KeyScope::named(name)
            .with_context(|| format!("unknown scope `{name}`; use submit, read, operate or admin"))
    };
    let submitters = match &key.submitters {
        Some(names) => Some(names.iter().map(|name| Ok(name.parse()?)).collect::<anyhow::Result<_>>()?),
        None => None,
    };
    let expires_at = match &key.expires_at {
        Some(text) => {
            Some(Timestamp::parse(text).with_context(|| format!("expires_at: `{text}` is not RFC 3339"))?)
        }
        None => None,
    };
    Ok(ApiKey {
        name: key.name.clone(),
        hash: hash.ok().context("hash is the key's SHA-256: 64 hex digits")?,
        scopes: key.scopes.iter().map(scope).collect::<anyhow::Result<_>>()?,
        submitters,
        expires_at,
    })
}
