"""The stores. Each engine keeps the promises of `toril.store.engine`; the conformance suite runs on all of them."""
