//! `println!` and similar macros for this crate: those of the standard library panic when the
//! reader has closed the pipe, as in `flux jobs | head -1`.
//!
//! If standard output is closed, the command exits, as SIGPIPE would make it. If standard error is
//! closed, the message is dropped: brokers print messages too, and must keep running.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// The exit code that shells show for a program killed by SIGPIPE.
const EXIT_SIGPIPE: i32 = 128 + 13;

pub fn output(text: Arguments<'_>) {
    match std::io::stdout().write_fmt(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(EXIT_SIGPIPE),
        Err(error) => {
            message(format_args!("flux: failed to print: {error}\n"));
            std::process::exit(1);
        }
        Ok(()) => {}
    }
}

pub fn message(text: Arguments<'_>) {
    let _no_reader = std::io::stderr().write_fmt(text);
}

macro_rules! print {
    ($($text:tt)*) => { $crate::print::output(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::print::output(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::output(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::print::message(format_args!($($text)*)) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print::message(format_args!("{}\n", format_args!($($text)*))) };
}
