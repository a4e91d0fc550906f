"""What a conversion will do, decided and checked before a byte is written. No torch in here."""
