//! Bytes to a [`Recording`](crate::model::Recording): total readers, one for each artefact, chosen by the first bytes.

pub mod oom_message;
