"""What `/help` says."""

from __future__ import annotations

HELP = {
    "": '''Available Commands:
  /set            Set session variables
  /show           Show model information
  /load <model>   Load a model or a saved conversation
  /save <model>   Save the conversation as a model
  /list           List stored models
  /clear          Clear session context
  /bye            Exit
  /?, /help       Help for a command
  /? shortcuts    Help for keyboard shortcuts

Use """ to begin a multi-line message.''',
    "set": """Available Commands:
  /set parameter ...     Set a parameter
  /set system <string>   Set system message
  /set history           Enable history
  /set nohistory         Disable history
  /set wordwrap          Enable wordwrap
  /set nowordwrap        Disable wordwrap
  /set format json       Enable JSON mode
  /set noformat          Disable formatting
  /set verbose           Show LLM stats
  /set quiet             Disable LLM stats
  /set think [level]     Enable thinking
  /set nothink           Disable thinking""",
    "show": """Available Commands:
  /show info         Show details for this model
  /show license      Show model license
  /show modelfile    Show Modelfile for this model
  /show parameters   Show parameters for this model
  /show system       Show system message
  /show template     Show prompt template""",
    "shortcuts": """Available keyboard shortcuts:
  Ctrl + a            Move to the beginning of the line (Home)
  Ctrl + e            Move to the end of the line (End)
   Alt + b            Move back (left) one word
   Alt + f            Move forward (right) one word
  Ctrl + k            Delete the sentence after the cursor
  Ctrl + u            Delete the sentence before the cursor
  Ctrl + w            Delete the word before the cursor
  Ctrl + j            Begin a new line

  Ctrl + l            Clear the screen
  Ctrl + g            Write the message in an editor
  Ctrl + p, Ctrl + n  Earlier and later messages (up, down)
  Ctrl + c            Stop the model from responding
  Ctrl + d            Exit (/bye)""",
    "parameter": """Available Parameters:
  /set parameter seed <int>                  Random number seed
  /set parameter num_predict <int>           Most tokens of a reply
  /set parameter top_k <int>                 Pick from so many tokens
  /set parameter top_p <float>               Pick from the likeliest
  /set parameter min_p <float>               Least likelihood of picks
  /set parameter num_ctx <int>               Tokens of the context
  /set parameter temperature <float>         How daring picks are
  /set parameter repeat_penalty <float>      How bad repetitions are
  /set parameter repeat_last_n <int>         Where they are looked for
  /set parameter num_gpu <int>               Layers on the GPU
  /set parameter draft_model <string>        Model that drafts
  /set parameter stop <string> <string> ...  Texts that end a reply""",
    "images": "Use /path/to/file to include .jpg, .png, or .webp images.",
}
