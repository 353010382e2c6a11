//! Refusals of requests: codes, reasons and retry intervals.

use std::time::Duration;

use weir_moqt::{error::RequestErrorCode, message::RequestError};

/// Returns the error of a request or an update that the relay refuses.
pub(crate) fn refusal(code: RequestErrorCode) -> RequestError {
    RequestError {
        code,
        retry_after: (code == RequestErrorCode::EXCESSIVE_LOAD).then_some(LOAD_RETRY),
        reason: reason(code).to_owned(),
        redirect: None,
    }
}

fn reason(code: RequestErrorCode) -> &'static str {
    match code {
        RequestErrorCode::DOES_NOT_EXIST => "nobody publishes this track",
        RequestErrorCode::TIMEOUT => "no publisher came in time",
        RequestErrorCode::EXCESSIVE_LOAD => "a limit of the relay is reached",
        RequestErrorCode::DUPLICATE_SUBSCRIPTION => "the session has this subscription already",
        RequestErrorCode::INVALID_RANGE => "no objects exist in this range",
        RequestErrorCode::INVALID_JOINING_REQUEST_ID => "no established subscription to join",
        RequestErrorCode::NOT_SUPPORTED => "no publisher serves this request",
        RequestErrorCode::PREFIX_OVERLAP => "the prefix overlaps with another of this session",
        RequestErrorCode::NAMESPACE_TOO_LARGE => "too many namespaces or tracks under this prefix",
        RequestErrorCode::UNAUTHORIZED => "the credentials do not permit this",
        RequestErrorCode::EXPIRED_AUTH_TOKEN => "the authorization has expired",
        RequestErrorCode::MALFORMED_AUTH_TOKEN => "the authorization token cannot be read",
        _ => "",
    }
}

/// The retry interval of a request that was refused at a limit.
const LOAD_RETRY: Duration = Duration::from_secs(1);
