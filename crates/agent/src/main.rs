//! The program; everything is in the library.

fn main() -> std::process::ExitCode {
    flux_operator_agent::main()
}
