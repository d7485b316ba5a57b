//! Tests that need a real kubelet; they are in `tests/`, one notion per file.
