"""Behaviour that records share: equality where they hold arrays, forms for prompts, fields that cannot change."""
