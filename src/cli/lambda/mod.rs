//! `surus lambda` and what belongs to it, a file per subcommand.
