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

    /// Returns all tokens, in order.
    pub fn all(&self) -> &[Token] {
        &self.0
    }

    /// Returns the tokens for a part of the clients, whose numbers are `numbers` among all.
    #[must_use]
    pub fn of_part(&self, numbers: impl Iterator<Item = usize>) -> Self {
        if self.0.len() < 2 {
            return self.clone();
        }
        Self::new(numbers.flat_map(|number| self.of(number)).collect())
    }

    /// Returns the tokens of client `number`: one, or none.
    pub fn of(&self, number: usize) -> Vec<Token> {
        let place = number.checked_rem(self.0.len());
        let token = place.and_then(|place| self.0.get(place));
        token.cloned().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_a_part_keep_their_tokens() {
        let token = |alias| Token::Delete { alias };
        let tokens = Tokens::new((0..5).map(token).collect());
        let part = tokens.of_part([1, 4, 7].into_iter());
        for (local, number) in [1, 4, 7].into_iter().enumerate() {
            assert_eq!(part.of(local), tokens.of(number));
        }
        let one = Tokens::new(vec![token(9)]);
        assert_eq!(one.of_part([3, 4].into_iter()), one);
    }
}
