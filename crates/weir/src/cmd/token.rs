//! `weir token`: makes keys and tokens for relays with JWT authentication.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use clap::{Args, Subcommand};
use jsonwebtoken::EncodingKey;
use weir_net::clock;

use crate::output::print_out;
use crate::relay::authority::{Claims, Prefix, Prefixes, Signer, public};
use crate::time::validity;

/// Make keys and tokens for a relay with JWT authentication
///
/// The relay gets the public key (`weir relay --set auth.jwt.keys=FILE.jwk`). The private key, FILE.pem, signs tokens and
/// stays with the issuer.
#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key pair: FILE.pem to sign tokens, FILE.jwk for relays
    Key {
        /// Path of the two key files, without an ending; an existing FILE.pem is not overwritten
        file: PathBuf,
    },
    /// Make a token, and print it
    ///
    /// At least one of --put and --get is required: a token without them permits nothing.
    Sign {
        /// Private key, the FILE.pem of `weir token key`
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Namespace below --root that the bearer may publish in, with / between its fields; '' for all; can be repeated
        #[arg(long, value_name = "NAMESPACE")]
        put: Vec<String>,
        /// Namespace below --root that the bearer may subscribe to, with / between its fields; '' for all; can be repeated
        #[arg(long, value_name = "NAMESPACE")]
        get: Vec<String>,
        /// Namespace above those of --put and --get; '' for none
        #[arg(long, value_name = "NAMESPACE", default_value = "")]
        root: String,
        /// Time for which the token is valid, up to 100 years, such as 30m, 12h or 10days; a number without
        /// a unit is seconds
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = validity)]
        lasts: Duration,
        /// Audience of the token, its claim `aud` [default: none]
        #[arg(long, value_name = "NAME")]
        audience: Option<String>,
        /// Issuer of the token, its claim `iss` [default: none]
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
                bail!(
                    "--put, --get: expected at least one: a token without them permits nothing. For all namespaces say \
                     --put '' or --get ''"
                );
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
            let token = Signer::read(&key).and_then(|signer| signer.sign(&claims));
            let token = token.context("--key")?;
            print_out(&format!("{token}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn make_key(file: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
        .map_err(|_| anyhow::anyhow!("the system returns no random bytes"))?;
    let der = pair
        .to_pkcs8v1()
        .map_err(|_| anyhow::anyhow!("the key cannot be encoded"))?;
    let signing = EncodingKey::from_ec_der(der.as_ref());
    let public = serde_json::to_string(&public(&signing)?)?;
    let ending = |ending: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let (secret_file, public_file) = (ending(".pem"), ending(".jwk"));
    let mut options = fs::OpenOptions::new();
    let name = || secret_file.display().to_string();
    // Only the owner may read the key, and a second call overwrites no key.
    let opened = options.write(true).create_new(true).mode(0o600);
    let opened = opened.open(&secret_file);
    if let Err(error) = &opened
        && error.kind() == ErrorKind::AlreadyExists
    {
        bail!(
            "{}: the file exists, and is not overwritten; choose another FILE, or remove it",
            name()
        );
    }
    let mut secret = opened.with_context(|| format!("{}: cannot be created", name()))?;
    secret
        .write_all(pem(der.as_ref()).as_bytes())
        .with_context(name)?;
    fs::write(&public_file, public + "\n").with_context(|| public_file.display().to_string())?;
    Ok(())
}

/// Encodes a PKCS #8 key as PEM (RFC 7468).
fn pem(der: &[u8]) -> String {
    pem::encode(&pem::Pem::new("PRIVATE KEY", der))
}
