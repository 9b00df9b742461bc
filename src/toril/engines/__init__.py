"""The stores. Each engine keeps the promises of `toril.engine`; the conformance suite runs on all of them."""
