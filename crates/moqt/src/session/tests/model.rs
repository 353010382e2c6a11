//! Random operations against a simple reference model.
