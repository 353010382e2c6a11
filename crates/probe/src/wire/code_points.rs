//! The code points that the cases name. Both drafts have the same ones, but for those that say otherwise.

/// Message types [moqt-18 §10] [moqt-22 §9].
pub(crate) mod message {
    pub(crate) const SETUP: u64 = 0x2F00;
    pub(crate) const GOAWAY: u64 = 0x10;
    pub(crate) const SUBSCRIBE: u64 = 0x3;
    pub(crate) const SUBSCRIBE_OK: u64 = 0x4;
    pub(crate) const PUBLISH: u64 = 0x1D;
    pub(crate) const PUBLISH_DONE: u64 = 0xB;
    pub(crate) const FETCH: u64 = 0x16;
    pub(crate) const FETCH_OK: u64 = 0x18;
    pub(crate) const TRACK_STATUS: u64 = 0xD;
    pub(crate) const PUBLISH_NAMESPACE: u64 = 0x6;
    pub(crate) const SUBSCRIBE_NAMESPACE: u64 = 0x50;
    pub(crate) const SUBSCRIBE_TRACKS: u64 = 0x51;
    pub(crate) const NAMESPACE: u64 = 0x8;
    pub(crate) const NAMESPACE_DONE: u64 = 0xE;
    pub(crate) const PUBLISH_BLOCKED: u64 = 0xF;
    pub(crate) const REQUEST_UPDATE: u64 = 0x2;
    pub(crate) const REQUEST_OK: u64 = 0x7;
    pub(crate) const REQUEST_ERROR: u64 = 0x5;
    /// From draft-20 on.
    pub(crate) const PUBLISH_STATE_NOTIFY: u64 = 0x22;
}

/// Message parameters [moqt-18 §10.2] [moqt-22 §9.20].
pub(crate) mod parameter {
    pub(crate) const OBJECT_DELIVERY_TIMEOUT: u64 = 0x02;
    pub(crate) const AUTHORIZATION_TOKEN: u64 = 0x03;
    pub(crate) const RENDEZVOUS_TIMEOUT: u64 = 0x04;
    pub(crate) const SUBGROUP_DELIVERY_TIMEOUT: u64 = 0x06;
    pub(crate) const EXPIRES: u64 = 0x08;
    pub(crate) const LARGEST_OBJECT: u64 = 0x09;
    pub(crate) const FILL_TIMEOUT: u64 = 0x0A;
    pub(crate) const FORWARD: u64 = 0x10;
    pub(crate) const SUBSCRIBER_PRIORITY: u64 = 0x20;
    pub(crate) const LOCATION_FILTER: u64 = 0x21;
    pub(crate) const GROUP_ORDER: u64 = 0x22;
    /// From draft-20 on.
    pub(crate) const FILL_PARAMETERS: u64 = 0x23;
    /// From draft-19 on.
    pub(crate) const SUBGROUP_FILTER: u64 = 0x25;
    /// From draft-19 on.
    pub(crate) const PRIORITY_FILTER: u64 = 0x27;
    /// From draft-19 on.
    pub(crate) const OBJECT_PROPERTY_FILTER: u64 = 0x28;
    /// From draft-19 on.
    pub(crate) const TRACK_PROPERTY_FILTER: u64 = 0x29;
    pub(crate) const NEW_GROUP_REQUEST: u64 = 0x32;
    pub(crate) const TRACK_NAMESPACE_PREFIX: u64 = 0x34;
    /// From draft-20 on.
    pub(crate) const INCLUDE_PROPERTIES: u64 = 0x35;
}

/// Setup options [moqt-18 §10.3.1] [moqt-22 §9.1].
pub(crate) mod option {
    pub(crate) const PATH: u64 = 0x01;
    pub(crate) const AUTHORIZATION_TOKEN: u64 = 0x03;
    pub(crate) const AUTHORITY: u64 = 0x05;
    /// From draft-19 on.
    pub(crate) const MAX_FILTER_RANGES: u64 = 0x06;
    /// From draft-19 on.
    pub(crate) const MAX_REQUEST_UPDATES: u64 = 0x08;
}

/// Properties [moqt-18 §12] [moqt-22 §10].
pub(crate) mod property {
    pub(crate) const MAX_CACHE_DURATION: u64 = 0x04;
    pub(crate) const IMMUTABLE: u64 = 0x0B;
    pub(crate) const DEFAULT_PUBLISHER_GROUP_ORDER: u64 = 0x22;
    pub(crate) const DYNAMIC_GROUPS: u64 = 0x30;
    pub(crate) const PRIOR_GROUP_ID_GAP: u64 = 0x3C;
    pub(crate) const PRIOR_OBJECT_ID_GAP: u64 = 0x3E;
    /// A type in the range of mandatory properties that no specification defines.
    pub(crate) const MANDATORY_UNKNOWN: u64 = 0x7ABC;
    /// A type with bytes in the range for applications, which relays forward.
    pub(crate) const OF_APPLICATION: u64 = 0x3801;
}

/// Stream and datagram types [moqt-18 §3.4, §11.5] [moqt-22 §6.4.1, §11.5].
pub(crate) mod stream {
    pub(crate) const FETCH: u64 = 0x05;
    pub(crate) const PADDING: u64 = 0x132B_3E28;
    pub(crate) const PADDING_DATAGRAM: u64 = 0x132B_3E29;
}

/// Codes that close a session [moqt-18 §3.5] [moqt-22 §12.2].
pub(crate) mod close {
    pub(crate) const PROTOCOL_VIOLATION: u64 = 0x3;
    pub(crate) const INVALID_REQUEST_ID: u64 = 0x4;
    pub(crate) const DUPLICATE_TRACK_ALIAS: u64 = 0x5;
    pub(crate) const KEY_VALUE_FORMATTING_ERROR: u64 = 0x6;
    pub(crate) const INVALID_PATH: u64 = 0x8;
    pub(crate) const MALFORMED_PATH: u64 = 0x9;
    pub(crate) const AUTH_TOKEN_CACHE_OVERFLOW: u64 = 0x13;
    pub(crate) const DUPLICATE_AUTH_TOKEN_ALIAS: u64 = 0x14;
    pub(crate) const UNKNOWN_AUTH_TOKEN_ALIAS: u64 = 0x17;
    pub(crate) const INVALID_AUTHORITY: u64 = 0x19;
    pub(crate) const MALFORMED_AUTHORITY: u64 = 0x1A;
}

/// Codes of REQUEST_ERROR [moqt-18 §10.6.2] [moqt-22 §12.3].
pub(crate) mod refusal {
    pub(crate) const INTERNAL_ERROR: u64 = 0x0;
    pub(crate) const TIMEOUT: u64 = 0x2;
    pub(crate) const DOES_NOT_EXIST: u64 = 0x10;
    pub(crate) const INVALID_RANGE: u64 = 0x11;
    /// Until draft-18.
    pub(crate) const DUPLICATE_SUBSCRIPTION: u64 = 0x19;
    pub(crate) const PREFIX_OVERLAP: u64 = 0x30;
    /// Until draft-19.
    pub(crate) const INVALID_JOINING_REQUEST_ID: u64 = 0x32;
    pub(crate) const UNSUPPORTED_EXTENSION: u64 = 0x33;
    pub(crate) const REDIRECT: u64 = 0x34;
}

/// Codes of PUBLISH_DONE [moqt-18 §10.11] [moqt-22 §12.4].
pub(crate) mod done {
    pub(crate) const TRACK_ENDED: u64 = 0x2;
    /// Until draft-19.
    pub(crate) const SUBSCRIPTION_ENDED: u64 = 0x3;
    pub(crate) const UPDATE_FAILED: u64 = 0x8;
    pub(crate) const MALFORMED_TRACK: u64 = 0x12;
}
