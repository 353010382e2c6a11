//! Counts with names: what they are called and what they mean is said once, where they are declared.

/// Declares a struct of counts, all `u64` and from zero, that can be listed with their names and sentences, and added up.
///
/// Each field needs a documentation comment: it is what operators read.
#[macro_export]
macro_rules! numbers {
    ($(#[$outer:meta])* $name:ident { $($(#[doc = $doc:literal])* $field:ident,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])* pub $field: u64,)+
        }

        impl $name {
            /// Each number with its name, in the order of the fields.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)+].into_iter()
            }

            /// What each number counts, in a sentence, in the order of the fields.
            pub fn descriptions() -> impl Iterator<Item = &'static str> {
                [$(concat!($($doc),*),)+].into_iter().map(str::trim)
            }

            /// Both together.
            #[must_use]
            pub fn plus(self, other: Self) -> Self {
                Self {
                    $($field: self.$field + other.$field,)+
                }
            }
        }
    };
}
