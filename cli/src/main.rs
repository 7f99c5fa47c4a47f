//! The program `agentctl`.

fn main() -> std::process::ExitCode {
    agentctl::main()
}
