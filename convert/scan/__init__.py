"""Reading the weights themselves: NaN, infinities, zeros, and how alike the K/V heads are."""
