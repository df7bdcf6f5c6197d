"""For Hugging Face models: `fit` a `Trainer`, or a model and its data, and get an
object that is called with strings, saved beside the model's files, and says how sure it
is. Needs the extra ``transformers``.

Sequence classification (`TextClassifier`), token classification (`TokenClassifier`) and
causal language models (`LanguageModel`). Importing `laplacebridge` imports none of
this.
"""

from laplacebridge._extras import needs_extra

with needs_extra("transformers", "`laplacebridge.transformers`"):
    import transformers as _installed  # noqa: F401

from laplacebridge.transformers.classifying import TextClassifier as TextClassifier
from laplacebridge.transformers.classifying import TokenClassifier as TokenClassifier
from laplacebridge.transformers.fitting import fit as fit
from laplacebridge.transformers.language import LanguageModel as LanguageModel
from laplacebridge.transformers.language import TokenAnswers as TokenAnswers
from laplacebridge.transformers.saving import from_pretrained as from_pretrained
