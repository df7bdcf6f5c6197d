"""The data of the paper's experiments, read from the files that their publishers offer. No reader uses pickle."""

from laplacebridge.paper.data.dataset import DamagedFileError as DamagedFileError
from laplacebridge.paper.data.dataset import DataSet as DataSet
from laplacebridge.paper.data.dataset import joined as joined
from laplacebridge.paper.data.find import find as find
from laplacebridge.paper.data.find import find_imagenet as find_imagenet
from laplacebridge.paper.data.images import ImageFolder as ImageFolder
from laplacebridge.paper.data.moons import half_moons as half_moons
