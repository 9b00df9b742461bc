"""`toril demo`: a small shop at work. `shop.py` is the app; the rest adds jobs to it and shows what becomes of them."""
