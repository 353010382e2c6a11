//! The peer's registered authorization tokens [moqt-18 §10.2.2].

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::error::{SessionError, Violation};
use crate::token::{CACHE_ENTRY_BYTES, Token};

/// Registered tokens by alias, up to the size announced to the peer.
///
/// The limit is this endpoint's `MAX_AUTH_TOKEN_CACHE_SIZE` [moqt-18 §10.3.1.3]; 0 forbids all registration.
#[derive(Debug)]
pub(super) struct TokenCache {
    tokens: BTreeMap<u64, (u64, Bytes)>,
    size_bytes: u64,
    size_bytes_max: u64,
}

impl TokenCache {
    pub(super) fn new(size_bytes_max: u64) -> Self {
        Self {
            tokens: BTreeMap::new(),
            size_bytes: 0,
            size_bytes_max,
        }
    }

    /// Carries out the token operations of a request or update, and leaves the tokens to authorize it with, all as
    /// [`Token::UseValue`].
    ///
    /// Returns whether each token occurs only once, as the draft demands of the sender.
    pub(super) fn resolve(&mut self, tokens: &mut Vec<Token>) -> Result<bool, Violation> {
        self.resolve_each(tokens, Self::carry_out)
    }

    /// Does the same for the tokens of the peer's SETUP, where a registration that does not fit counts as a use of the
    /// value [moqt-18 §10.3.1.4].
    pub(super) fn resolve_setup(&mut self, tokens: &mut Vec<Token>) -> Result<bool, Violation> {
        self.resolve_each(tokens, |cache, token| match token {
            Token::Register {
                token_type, value, ..
            } if !cache.has_room_for(&value) => Ok(Some((token_type, value))),
            Token::Delete { .. }
            | Token::UseAlias { .. }
            | Token::Register { .. }
            | Token::UseValue { .. } => cache.carry_out(token),
        })
    }

    fn resolve_each(
        &mut self,
        tokens: &mut Vec<Token>,
        mut carry_out: impl FnMut(&mut Self, Token) -> Result<Option<(u64, Bytes)>, Violation>,
    ) -> Result<bool, Violation> {
        let mut unique = true;
        for token in std::mem::take(tokens) {
            if let Some((token_type, value)) = carry_out(self, token)? {
                let token = Token::UseValue { token_type, value };
                unique &= !tokens.contains(&token);
                tokens.push(token);
            }
        }
        Ok(unique)
    }

    fn carry_out(&mut self, token: Token) -> Result<Option<(u64, Bytes)>, Violation> {
        match token {
            Token::UseValue { token_type, value } => Ok(Some((token_type, value))),
            Token::UseAlias { alias } => self.tokens.get(&alias).cloned().map(Some).ok_or(UNKNOWN),
            Token::Register {
                alias,
                token_type,
                value,
            } => {
                self.register(alias, token_type, &value)?;
                Ok(Some((token_type, value)))
            }
            Token::Delete { alias } => {
                let (_, value) = self.tokens.remove(&alias).ok_or(UNKNOWN)?;
                self.size_bytes -= size_bytes(&value);
                Ok(None)
            }
        }
    }

    fn register(&mut self, alias: u64, token_type: u64, value: &Bytes) -> Result<(), Violation> {
        if self.tokens.contains_key(&alias) {
            let reason = "a token alias is registered twice";
            return Err(SessionError::DUPLICATE_AUTH_TOKEN_ALIAS.violation(reason));
        }
        if !self.has_room_for(value) {
            let reason = "the registered tokens exceed the cache size";
            return Err(SessionError::AUTH_TOKEN_CACHE_OVERFLOW.violation(reason));
        }
        self.size_bytes += size_bytes(value);
        // A copy, so that the cache does not keep whole messages in memory.
        self.tokens
            .insert(alias, (token_type, Bytes::copy_from_slice(value)));
        Ok(())
    }

    fn has_room_for(&self, value: &Bytes) -> bool {
        self.size_bytes + size_bytes(value) <= self.size_bytes_max
    }
}

const UNKNOWN: Violation =
    SessionError::UNKNOWN_AUTH_TOKEN_ALIAS.violation("a token alias is not registered");

fn size_bytes(value: &Bytes) -> u64 {
    CACHE_ENTRY_BYTES + value.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(alias: u64, value: &'static [u8]) -> Token {
        Token::Register {
            alias,
            token_type: 1,
            value: Bytes::from_static(value),
        }
    }

    fn value(value: &'static [u8]) -> Token {
        Token::UseValue {
            token_type: 1,
            value: Bytes::from_static(value),
        }
    }

    fn resolve(cache: &mut TokenCache, token: Token) -> Result<Vec<Token>, SessionError> {
        let mut tokens = vec![token];
        cache
            .resolve(&mut tokens)
            .map(|_| tokens)
            .map_err(|violation| violation.code)
    }

    #[test]
    fn a_registered_token_is_used_until_deleted() {
        let mut cache = TokenCache::new(100);
        assert_eq!(
            resolve(&mut cache, register(5, b"abc")),
            Ok(vec![value(b"abc")])
        );
        assert_eq!(
            resolve(&mut cache, Token::UseAlias { alias: 5 }),
            Ok(vec![value(b"abc")])
        );
        assert_eq!(resolve(&mut cache, Token::Delete { alias: 5 }), Ok(vec![]));
        for token in [Token::UseAlias { alias: 5 }, Token::Delete { alias: 5 }] {
            let result = resolve(&mut cache, token);
            assert_eq!(result, Err(SessionError::UNKNOWN_AUTH_TOKEN_ALIAS));
        }
        assert_eq!(cache.size_bytes, 0);
    }

    #[test]
    fn an_alias_is_registered_once() {
        let mut cache = TokenCache::new(100);
        resolve(&mut cache, register(5, b"abc")).unwrap();
        let again = resolve(&mut cache, register(5, b"abc"));
        assert_eq!(again, Err(SessionError::DUPLICATE_AUTH_TOKEN_ALIAS));
    }

    #[test]
    fn the_cache_holds_its_size_and_not_a_byte_more() {
        let mut cache = TokenCache::new(2 * 16 + 3);
        resolve(&mut cache, register(1, b"ab")).unwrap();
        resolve(&mut cache, register(2, b"c")).unwrap();
        resolve(&mut cache, Token::Delete { alias: 2 }).unwrap();
        let over = resolve(&mut cache, register(2, b"cd"));
        assert_eq!(over, Err(SessionError::AUTH_TOKEN_CACHE_OVERFLOW));
        resolve(&mut cache, register(2, b"c")).unwrap();
    }

    #[test]
    fn a_registration_in_setup_that_does_not_fit_is_a_use() {
        let mut cache = TokenCache::new(0);
        let mut tokens = vec![register(1, b"ab")];
        cache.resolve_setup(&mut tokens).unwrap();
        assert_eq!(tokens, [value(b"ab")]);
        let unknown = resolve(&mut cache, Token::UseAlias { alias: 1 });
        assert_eq!(unknown, Err(SessionError::UNKNOWN_AUTH_TOKEN_ALIAS));
    }

    #[test]
    fn setup_registers_what_fits_in_order() {
        let mut cache = TokenCache::new(16 + 2);
        let mut tokens = vec![register(1, b"ab"), register(2, b"cd")];
        assert_eq!(cache.resolve_setup(&mut tokens), Ok(true));
        assert_eq!(tokens, [value(b"ab"), value(b"cd")]);
        assert!(cache.tokens.contains_key(&1) && !cache.tokens.contains_key(&2));
    }

    #[test]
    fn the_same_token_twice_is_noticed() {
        let mut cache = TokenCache::new(100);
        let mut tokens = vec![register(1, b"ab"), Token::UseAlias { alias: 1 }];
        assert_eq!(cache.resolve(&mut tokens), Ok(false));
        assert!(
            cache.tokens.contains_key(&1),
            "registered although the message fails"
        );
    }
}
