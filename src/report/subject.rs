//! What a message is about.

use std::borrow::Cow;
use std::fmt;

/// A ref, or what has one inside: by its name, or else by its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    what: &'static str,
    name: Option<Cow<'static, str>>,
}

impl Subject {
    /// `what`: with its article, for one that has no name.
    pub(crate) fn new(what: &'static str, name: Option<Cow<'static, str>>) -> Self {
        Self { what, name }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "ref `{name}`"),
            None => write!(f, "{} without a name", self.what),
        }
    }
}
