"""The data of the paper's experiments, read from the files that their publishers offer.
No reader uses pickle.
"""

from laplacebridge_reproduction.data.dataset import DamagedFileError as DamagedFileError
from laplacebridge_reproduction.data.dataset import DataSet as DataSet
from laplacebridge_reproduction.data.dataset import joined as joined
from laplacebridge_reproduction.data.find import find as find
from laplacebridge_reproduction.data.find import find_imagenet as find_imagenet
from laplacebridge_reproduction.data.folder import DataMissingError as DataMissingError
from laplacebridge_reproduction.data.images import ImageFolder as ImageFolder
from laplacebridge_reproduction.data.moons import half_moons as half_moons
