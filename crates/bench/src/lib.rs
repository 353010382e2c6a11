//! The relay benchmark of draft-evens-moq-bench-00: profile, schedule, drive, measure, report.
