"""`toril demo`: runs a small shop. `shop.py` is the app; the rest adds jobs to it and shows what happens to them."""
