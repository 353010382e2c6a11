//! `weir token`: keys and tokens for a relay that asks for them.

use std::{fs, io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use clap::{Args, Subcommand};
use jsonwebtoken::{
    Algorithm, EncodingKey, Header, encode,
    jwk::{Jwk, ThumbprintHash},
};
use weir_net::clock;

use crate::output::print_out;
use crate::relay::authority::{Claims, Prefix, Prefixes};
use crate::time::validity;

/// Make keys and tokens for a relay
///
/// For trying things out, and for issuers that are a script. The relay gets the public half of the key
/// (--set auth.jwt.keys=FILE), whoever may hand out tokens keeps the other.
#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key: FILE.pem to sign with, FILE.jwk for relays
    Key {
        /// Path of the key files, without an ending
        file: PathBuf,
    },
    /// Make a token and print it
    Sign {
        /// The key to sign with, PEM
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Namespace in which its bearer may publish, fields with `/` between them; can be repeated; "" is all
        #[arg(long, value_name = "NAMESPACE")]
        put: Vec<String>,
        /// Namespace that its bearer may subscribe to; can be repeated
        #[arg(long, value_name = "NAMESPACE")]
        get: Vec<String>,
        /// Namespace that all namespaces of --put and --get are below
        #[arg(long, value_name = "NAMESPACE", default_value = "")]
        root: String,
        /// How long the token is valid
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = validity)]
        lasts: Duration,
        /// Audience of the token (`aud`)
        #[arg(long, value_name = "NAME")]
        audience: Option<String>,
        /// Issuer of the token (`iss`)
        #[arg(long, value_name = "NAME")]
        issuer: Option<String>,
    },
}

pub(crate) fn run(arguments: TokenArguments) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::Key { file } => make_key(&file)?,
        Action::Sign {
            key,
            put,
            get,
            root,
            lasts,
            audience,
            issuer,
        } => {
            if put.is_empty() && get.is_empty() {
                bail!("--put, --get: a token without either permits nothing");
            }
            let prefixes =
                |list: Vec<String>| Prefixes::Several(list.into_iter().map(Prefix::Path).collect());
            let claims = Claims {
                root: Prefix::Path(root),
                put: prefixes(put),
                get: prefixes(get),
                exp: (clock::since_epoch() + lasts).as_secs(),
                nbf: None,
                aud: audience.map(Into::into),
                iss: issuer,
            };
            let name = || key.display().to_string();
            let text = fs::read(&key).with_context(name)?;
            let signing = EncodingKey::from_ec_pem(&text).with_context(name)?;
            let mut header = Header::new(Algorithm::ES256);
            header.kid = public(&signing).with_context(name)?.common.key_id;
            let token = encode(&header, &claims, &signing).with_context(name)?;
            print_out(&format!("{token}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn make_key(file: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
        .map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
    let der = pair
        .to_pkcs8v1()
        .map_err(|_| anyhow::anyhow!("the key cannot be written down"))?;
    let signing = EncodingKey::from_ec_der(der.as_ref());
    let public = serde_json::to_string(&public(&signing)?)?;
    let ending = |ending: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let (secret_file, public_file) = (ending(".pem"), ending(".jwk"));
    // Nobody else may read it, and no key is lost to a second call.
    let mut options = fs::OpenOptions::new();
    let name = || secret_file.display().to_string();
    let mut secret = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&secret_file)
        .with_context(name)?;
    secret
        .write_all(pem(der.as_ref()).as_bytes())
        .with_context(name)?;
    fs::write(&public_file, public + "\n").with_context(|| public_file.display().to_string())?;
    Ok(())
}

/// The public half of a key, under a name that is made from it.
fn public(signing: &EncodingKey) -> anyhow::Result<Jwk> {
    let mut key = Jwk::from_encoding_key(signing, Algorithm::ES256)?;
    key.common.key_id = Some(key.thumbprint(ThumbprintHash::SHA256)?);
    Ok(key)
}

/// PKCS #8 in PEM (RFC 7468).
fn pem(der: &[u8]) -> String {
    pem::encode(&pem::Pem::new("PRIVATE KEY", der))
}
