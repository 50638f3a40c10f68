"""Three applications, each written with Heliograph, LangGraph and pydantic-ai, to count lines and compare what a killed process loses."""
