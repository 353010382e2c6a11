//! The module of the program that reads the frames of agents' messages, as a link to its file.

pub(crate) mod remote {
    pub(crate) mod envelope;
}
