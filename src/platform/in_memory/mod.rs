//! Twins of the ports in plain memory, with faults that tests can switch on.
