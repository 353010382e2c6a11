//! Templates: fills in the numbers of a run in a profile's namespaces and names.
//!
//! A template is text with fields in braces. `{}` and `{0}` stand for the publisher's number; `{client}`, `{meeting}`,
//! `{track}` and `{run}` for the numbers of the same names. A width may follow, as in `{client:04}`; `{{` and `}}`
//! stand for braces. A namespace that was filled in is split at each `/` into the fields of the tuple (decisions 30 and
//! 31).

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

use thiserror::Error;
use weir_moqt::name::{FullTrackName, NameError, Namespace, TrackName};

use crate::limits::{FULL_TRACK_NAME_BYTES_MAX, NAMESPACE_FIELDS_MAX, TEMPLATE_WIDTH_MAX};

/// The numbers that fill in a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// The publisher's number in the whole run: `{}` and `{0}`.
    pub instance: u64,
    /// The publisher's number in its meeting: `{client}`.
    pub client: u64,
    /// The meeting's number: `{meeting}`.
    pub meeting: u64,
    /// The track's number in its profile, from zero: `{track}`.
    pub track: u64,
    /// The run's number, the same for all of its clients: `{run}`.
    pub run: u64,
}

/// The templates of a track's namespace and name. Whatever the numbers, the result is a full track name within the
/// limits of MOQT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackTemplate {
    namespace: Template,
    namespace_raw: bool,
    name: Template,
}

/// A namespace and a name filled in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrackLabel {
    /// The fields of the namespace tuple, none of them empty.
    pub namespace: Vec<String>,
    /// The track's name.
    pub name: String,
}

/// Text with fields to fill in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    segments: Vec<Segment>,
}

/// Why a template cannot be used.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TemplateError {
    /// An opening brace without its closing one.
    #[error("`{{` without `}}`; for a brace in the text write `{{{{`")]
    Unclosed,
    /// A closing brace without its opening one.
    #[error("`}}` without `{{`; for a brace in the text write `}}}}`")]
    Unopened,
    /// An unknown name in braces.
    #[error("expected {{}}, {{client}}, {{meeting}}, {{track}} or {{run}}")]
    UnknownField,
    /// `{}` more than once: the second one would be ambiguous.
    #[error("expected {{}} only once; use {{0}}, or a named field")]
    SecondPositional,
    /// A width that is not a number, or is too large.
    #[error("expected a width of 1 to {TEMPLATE_WIDTH_MAX} digits after `:`")]
    Width,
    /// Two slashes in a row, or a slash at either end.
    #[error("expected no empty field: remove the `/` at an end, or one of two together")]
    EmptyField,
    /// More fields than a namespace may have.
    #[error("expected at most {NAMESPACE_FIELDS_MAX} fields")]
    TooManyFields,
    /// Namespace and name are too long together.
    #[error("expected namespace and name of at most {FULL_TRACK_NAME_BYTES_MAX} bytes together")]
    TooLong,
}

/// Two publishers would publish the same track.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{first} and {second} would both publish {label}; add {{}}, {{meeting}} or {{track}} to namespace or name"
)]
pub struct Clash {
    /// The track that both would publish.
    pub label: TrackLabel,
    /// The publisher that was found first.
    pub first: String,
    /// The publisher that was found second.
    pub second: String,
}

/// Returns an error if two publishers have the same full track name (decision 30). `publications` pairs each
/// publisher's name with its track.
pub fn check_clashes(
    publications: impl IntoIterator<Item = (String, TrackLabel)>,
) -> Result<(), Clash> {
    let mut publishers = BTreeMap::new();
    for (second, label) in publications {
        if let Some(first) = publishers.insert(label.clone(), second.clone()) {
            return Err(Clash {
                label,
                first,
                second,
            });
        }
    }
    Ok(())
}

impl TrackTemplate {
    /// Joins a namespace and a name. With `namespace_raw` the namespace is a single field that keeps its slashes.
    pub fn new(
        namespace: Template,
        namespace_raw: bool,
        name: Template,
    ) -> Result<Self, TemplateError> {
        let template = Self {
            namespace,
            namespace_raw,
            name,
        };
        // Numbers are never empty and hold no slash, so one filling shows how many fields each filling has.
        let longest = template.fill(&Variables {
            instance: u64::MAX,
            client: u64::MAX,
            meeting: u64::MAX,
            track: u64::MAX,
            run: u64::MAX,
        });
        if longest.namespace.iter().any(String::is_empty) {
            return Err(TemplateError::EmptyField);
        }
        if longest.namespace.len() > NAMESPACE_FIELDS_MAX {
            return Err(TemplateError::TooManyFields);
        }
        let bytes = longest.namespace.iter().map(String::len).sum::<usize>() + longest.name.len();
        if bytes > FULL_TRACK_NAME_BYTES_MAX {
            return Err(TemplateError::TooLong);
        }
        Ok(template)
    }

    /// Fills in the fields.
    pub fn fill(&self, variables: &Variables) -> TrackLabel {
        let namespace = self.namespace.fill(variables);
        let namespace = if self.namespace_raw {
            vec![namespace]
        } else {
            namespace.split('/').map(str::to_owned).collect()
        };
        TrackLabel {
            namespace,
            name: self.name.fill(variables),
        }
    }

    /// Returns the template with `text` behind the name.
    ///
    /// # Errors
    /// [`TemplateError::TooLong`]: namespace and name can exceed the limit of MOQT.
    pub(crate) fn with_name_suffix(mut self, text: &str) -> Result<Self, TemplateError> {
        match self.name.segments.last_mut() {
            Some(Segment::Literal(literal)) => literal.push_str(text),
            Some(Segment::Field { .. }) | None => {
                self.name.segments.push(Segment::Literal(text.to_owned()));
            }
        }
        Self::new(self.namespace, self.namespace_raw, self.name)
    }

    /// Returns the namespace as written in the profile.
    pub fn namespace(&self) -> &Template {
        &self.namespace
    }

    /// Whether the namespace is a single field that keeps its slashes.
    pub fn namespace_raw(&self) -> bool {
        self.namespace_raw
    }

    /// Returns the name as written in the profile.
    pub fn name(&self) -> &Template {
        &self.name
    }
}

impl Template {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut segments = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(position) = rest.find(['{', '}']) {
            literal.push_str(&rest[..position]);
            let brace = &rest[position..=position];
            let after = &rest[position + 1..];
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err(TemplateError::Unopened);
            }
            let (inside, after) = after.split_once('}').ok_or(TemplateError::Unclosed)?;
            if !literal.is_empty() {
                segments.push(Segment::Literal(std::mem::take(&mut literal)));
            }
            segments.push(Segment::parse_field(inside)?);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            segments.push(Segment::Literal(literal));
        }
        let positional = |segment: &&Segment| {
            matches!(
                segment,
                Segment::Field {
                    field: Field::Next,
                    ..
                }
            )
        };
        if segments.iter().filter(positional).count() > 1 {
            return Err(TemplateError::SecondPositional);
        }
        Ok(Self { segments })
    }

    /// Fills in the fields.
    pub fn fill(&self, variables: &Variables) -> String {
        let mut filled = String::new();
        for segment in &self.segments {
            segment.fill(variables, &mut filled);
        }
        filled
    }

    /// Whether the text is the same for all numbers.
    pub fn is_constant(&self) -> bool {
        self.segments
            .iter()
            .all(|segment| matches!(segment, Segment::Literal(_)))
    }
}

impl TrackLabel {
    /// Returns the name as a MOQT full track name. A label from a [`TrackTemplate`] is always within the limits.
    pub fn full_track_name(&self) -> Result<FullTrackName, NameError> {
        FullTrackName::new(
            Namespace::new(&self.namespace)?,
            TrackName::new(&self.name)?,
        )
    }
}

/// Prints the template as written in a profile.
impl Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => {
                    f.write_str(&text.replace('{', "{{").replace('}', "}}"))?;
                }
                Segment::Field { field, width: None } => write!(f, "{{{}}}", field.name())?,
                Segment::Field {
                    field,
                    width: Some(Width { digits, zeros }),
                } => {
                    let zero = if *zeros { "0" } else { "" };
                    write!(f, "{{{}:{zero}{digits}}}", field.name())?;
                }
            }
        }
        Ok(())
    }
}

/// Prints the fields joined by `/`, then `--` and the name.
impl Display for TrackLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}--{}", self.namespace.join("/"), self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Field { field: Field, width: Option<Width> },
}

impl Segment {
    fn parse_field(inside: &str) -> Result<Self, TemplateError> {
        let (name, width) = match inside.split_once(':') {
            Some((name, width)) => (name, Some(Width::parse(width)?)),
            None => (inside, None),
        };
        let field = Field::ALL.into_iter().find(|field| field.name() == name);
        Ok(Self::Field {
            field: field.ok_or(TemplateError::UnknownField)?,
            width,
        })
    }

    fn fill(&self, variables: &Variables, filled: &mut String) {
        let written = match self {
            Self::Literal(text) => filled.write_str(text),
            Self::Field { field, width } => {
                let number = field.of(variables);
                match width {
                    None => write!(filled, "{number}"),
                    Some(Width {
                        digits,
                        zeros: true,
                    }) => write!(filled, "{number:0digits$}"),
                    Some(Width {
                        digits,
                        zeros: false,
                    }) => write!(filled, "{number:digits$}"),
                }
            }
        };
        written.expect("writing to a string succeeds");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// `{}`, at most once in a template.
    Next,
    /// `{0}`.
    Instance,
    Client,
    Meeting,
    Track,
    Run,
}

impl Field {
    const ALL: [Self; 6] = [
        Self::Next,
        Self::Instance,
        Self::Client,
        Self::Meeting,
        Self::Track,
        Self::Run,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Next => "",
            Self::Instance => "0",
            Self::Client => "client",
            Self::Meeting => "meeting",
            Self::Track => "track",
            Self::Run => "run",
        }
    }

    fn of(self, variables: &Variables) -> u64 {
        match self {
            Self::Next | Self::Instance => variables.instance,
            Self::Client => variables.client,
            Self::Meeting => variables.meeting,
            Self::Track => variables.track,
            Self::Run => variables.run,
        }
    }
}

/// The width that a number is padded to on its left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    digits: usize,
    /// Whether zeros pad the number; otherwise blanks do.
    zeros: bool,
}

impl Width {
    fn parse(text: &str) -> Result<Self, TemplateError> {
        let (zeros, digits) = match text.strip_prefix('0') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TemplateError::Width);
        }
        let digits = digits.parse().map_err(|_| TemplateError::Width)?;
        if (1..=TEMPLATE_WIDTH_MAX).contains(&digits) {
            Ok(Self { digits, zeros })
        } else {
            Err(TemplateError::Width)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VARIABLES: Variables = Variables {
        instance: 1002,
        client: 2,
        meeting: 1,
        track: 7,
        run: 99,
    };

    fn label(namespace: &str, name: &str) -> Result<TrackLabel, TemplateError> {
        let (namespace, name) = (Template::parse(namespace)?, Template::parse(name)?);
        Ok(TrackTemplate::new(namespace, false, name)?.fill(&VARIABLES))
    }

    fn filled(text: &str) -> Result<String, TemplateError> {
        Template::parse(text).map(|template| template.fill(&VARIABLES))
    }

    #[test]
    fn fills_in_every_field() {
        let fields = "perf/{meeting}/{client}";
        assert_eq!(label(fields, "{track}").unwrap().to_string(), "perf/1/2--7");
        assert_eq!(filled("{}").unwrap(), "1002");
        assert_eq!(filled("{0}-{0}-{run}").unwrap(), "1002-1002-99");
        assert_eq!(
            filled("{client:04}|{client:3}|{:06}").unwrap(),
            "0002|  2|001002"
        );
        assert_eq!(filled("{{}}{{{track}}}").unwrap(), "{}{7}");
        assert_eq!(filled("{run:020}").unwrap(), "00000000000000000099");
    }

    #[test]
    fn refuses_what_it_would_have_to_guess() {
        for (text, error) in [
            ("{", TemplateError::Unclosed),
            ("a}", TemplateError::Unopened),
            ("{1}", TemplateError::UnknownField),
            ("{Client}", TemplateError::UnknownField),
            ("{}{}", TemplateError::SecondPositional),
            ("{:}", TemplateError::Width),
            ("{:0}", TemplateError::Width),
            ("{:x}", TemplateError::Width),
            ("{:+4}", TemplateError::Width),
            ("{:021}", TemplateError::Width),
        ] {
            assert_eq!(filled(text), Err(error), "{text}");
        }
    }

    #[test]
    fn splits_a_namespace_at_slashes() {
        assert_eq!(
            label("perf/audio/{}", "1").unwrap().namespace,
            ["perf", "audio", "1002"]
        );
        for namespace in ["/a", "a/", "a//b", "/"] {
            assert_eq!(
                label(namespace, "1"),
                Err(TemplateError::EmptyField),
                "{namespace}"
            );
        }
        let raw = TrackTemplate::new(
            Template::parse("/perf//{}/").unwrap(),
            true,
            Template::parse("1").unwrap(),
        );
        assert_eq!(raw.unwrap().fill(&VARIABLES).namespace, ["/perf//1002/"]);
    }

    #[test]
    fn keeps_to_the_limits_of_a_full_track_name() {
        let fields = |count: usize| vec!["f"; count].join("/");
        assert!(label(&fields(NAMESPACE_FIELDS_MAX), "1").is_ok());
        assert_eq!(
            label(&fields(NAMESPACE_FIELDS_MAX + 1), "1"),
            Err(TemplateError::TooManyFields)
        );

        // Each numeric field may grow to twenty digits.
        let name = |bytes: usize| "n".repeat(bytes);
        let rest = FULL_TRACK_NAME_BYTES_MAX - 1 - 20;
        assert!(label("a/{}", &name(rest)).is_ok());
        assert_eq!(label("a/{}", &name(rest + 1)), Err(TemplateError::TooLong));
    }

    #[test]
    fn the_longest_label_is_a_full_track_name() {
        let name = "n".repeat(FULL_TRACK_NAME_BYTES_MAX - 1 - 20);
        let template = |text: &str| Template::parse(text).unwrap();
        let template = TrackTemplate::new(template("a/{}"), false, template(&name)).unwrap();
        let longest = Variables {
            instance: u64::MAX,
            ..VARIABLES
        };
        assert!(template.fill(&longest).full_track_name().is_ok());
    }

    #[test]
    fn finds_two_publishers_of_one_track() {
        let label = |client| label("perf", &format!("{client}")).unwrap();
        let publisher = |number: u32| format!("publisher {number}");
        let apart = [(publisher(0), label(0)), (publisher(1), label(1))];
        assert_eq!(check_clashes(apart.clone()), Ok(()));
        let clash = check_clashes(apart.into_iter().chain([(publisher(2), label(0))]));
        insta::assert_snapshot!(clash.unwrap_err(), @"publisher 0 and publisher 2 would both publish perf--0; add {}, {meeting} or {track} to namespace or name");
    }

    proptest! {
        #[test]
        fn prints_what_it_read(text in r"[a-z/{}:0-9]{0,20}|(a|/|\{\}|\{0\}|\{client:0?[1-9]\}|\{\{){0,8}") {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(Template::parse(&template.to_string()), Ok(template));
            }
        }
    }
}
