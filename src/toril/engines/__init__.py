"""The stores. Each engine implements `toril.store.engine`; the conformance suite runs on all of them."""
