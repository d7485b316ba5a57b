//! The program. See the library.

fn main() -> std::process::ExitCode {
    fluxlet::main(std::env::args_os())
}
