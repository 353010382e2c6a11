//! The folders of the tests.

use crate::process::Folder;

/// A second of audio.
pub(crate) const PROFILE: &str = "[audio]
namespace = boardroom/{run}
name = chairman
track_mode = datagram
priority = 2
ttl = 2000
time_interval = 20
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 500
total_transmit_time = 1500
";

/// A folder that contains the profile.
pub(crate) fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("profile.ini", PROFILE);
    folder
}
