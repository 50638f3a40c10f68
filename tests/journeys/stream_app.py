"""The application of `test_streaming.py`: one agent with a model that thinks and streams slowly."""

from heliograph import Heliograph

app = Heliograph("stream")
app.prompt_agent("speaker", "Speak.", model="anthropic:claude-test", activate_on=["workflow:start"], updates="said")
