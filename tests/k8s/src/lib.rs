//! Tests that need a real API server; they are in `tests/`, one notion per file.
