"""Everything of the site that may be heavy: numbers, planning, accounting, the gateway, audits."""
