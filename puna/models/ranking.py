"""What models that rank texts have in common."""

from __future__ import annotations

from puna.graph import GraphError


class NoScores(GraphError):
    """The file says that its model ranks texts, and has nothing to make scores with. No engine can run it:
    what came out would be no scores.
    """

    def __init__(self, tensors: str) -> None:
        super().__init__(
            f"{tensors} missing, which a ranking model needs: use a file that was converted as a reranker"
        )
