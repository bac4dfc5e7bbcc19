"""What tests share: real brokers and processes, scenes, slow twins and oracles. No test is imported by another."""
