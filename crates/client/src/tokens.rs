//! Tokens of many clients.

use std::sync::Arc;

use weir_moqt::token::Token;

/// Tokens that clients take in turn: with n tokens, client k shows token k modulo n. Without tokens, they show none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Arc<[Token]>);

impl Tokens {
    /// Returns these tokens, in order.
    pub fn new(tokens: Vec<Token>) -> Self {
        Self(tokens.into())
    }

    /// Returns the tokens of client `number`: one, or none.
    pub fn of(&self, number: usize) -> Vec<Token> {
        let place = number.checked_rem(self.0.len());
        let token = place.and_then(|place| self.0.get(place));
        token.cloned().into_iter().collect()
    }
}
