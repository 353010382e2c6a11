//! The macro that declares metrics: counters and gauges, each with its name and description, written as a field and its
//! comment.

/// Declares a struct of metrics, all `u64` and initially zero, that lists their names and descriptions and can be
/// summed.
///
/// Each field needs a documentation comment, which is the description shown to operators.
#[macro_export]
macro_rules! metrics {
    ($(#[$outer:meta])* $name:ident { $($(#[doc = $doc:literal])* $field:ident,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])* pub $field: u64,)+
        }

        impl $name {
            /// Returns each metric's name and value, in the order of the fields.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)+].into_iter()
            }

            /// Returns each metric's description, one sentence, in the order of the fields.
            pub fn descriptions() -> impl Iterator<Item = &'static str> {
                [$(concat!($($doc),*),)+].into_iter().map(str::trim)
            }

            /// Returns the sum of both, metric by metric.
            #[must_use]
            pub fn plus(self, other: Self) -> Self {
                Self {
                    $($field: self.$field + other.$field,)+
                }
            }
        }
    };
}
