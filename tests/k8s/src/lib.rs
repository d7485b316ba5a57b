//! Tests that need a real API server. They are in `tests/`, one topic per file.
