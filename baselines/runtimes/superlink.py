"""stub"""


class SuperLink: ...
