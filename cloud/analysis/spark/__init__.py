"""The Spark session: its settings, its virtual machine, our Java, and plans that change."""
