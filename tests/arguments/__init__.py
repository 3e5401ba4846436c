"""Every argument of every public function, replaced by what it must not be."""
