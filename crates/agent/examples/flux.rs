//! fluxlet, which the tests run where Flux is not installed.

fn main() -> std::process::ExitCode {
    fluxlet::main(std::env::args_os())
}
