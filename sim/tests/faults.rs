//! The planted defects fit the sources.

#[test]
fn every_original_text_occurs_once() {
    if let Err(error) = sim::faults::sources() {
        panic!("sim/faults.toml: {error}");
    }
}
