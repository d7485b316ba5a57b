//! The stand-in for Flux that the tests run, where there is no Flux.

fn main() -> std::process::ExitCode {
    fluxlet::main(std::env::args_os())
}
