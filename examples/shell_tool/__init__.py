"""An external tool in plain shell."""
