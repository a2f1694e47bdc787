"""Many runs, and what is concluded from them."""
