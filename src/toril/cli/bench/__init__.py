"""`toril bench`: measures what a store can do, through worker processes."""
